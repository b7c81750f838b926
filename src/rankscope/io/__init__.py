"""Files of rankscope's own: atomic writes, and runs that can be stopped."""
