"""Self-contained HTML report from any mix of results."""

from rankscope_eval.page.build import Page, build_page

__all__ = ["build_page", "Page"]
