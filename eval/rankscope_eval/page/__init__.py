"""Self-contained HTML report from any mix of results: `rankscope_eval.page.build`."""
