"""Files of rankscope's own: atomic writes and locks."""
