"""The evidence: everything that was scored, timed or checked."""

from __future__ import annotations

from rankscope_eval.page.html import Child
from rankscope_eval.page.lineage import Library
from rankscope_eval.page.sections import Section
from rankscope_eval.page.sections.scores import eval_part
from rankscope_eval.page.sections.timing import bench_part
from rankscope_eval.page.sections.trials import sweep_part, table2_part, theory_part


def evidence_section(library: Library) -> Section:
    """Everything that was scored, timed or checked."""
    content: list[Child] = []
    for place, one in enumerate(library.of("eval")):
        content += eval_part(one.content, f"eval-{place}")
    for place, one in enumerate(library.of("table2")):
        content += table2_part(one.content, f"table2-{place}")
    for place, one in enumerate(library.of("bench")):
        content += bench_part(one.content, f"bench-{place}")
    for place, one in enumerate(library.of("sweep")):
        content += sweep_part(one.content, f"sweep-{place}")
    for place, one in enumerate(library.of("theory")):
        content += theory_part(one.content, f"theory-{place}")
    return Section("evidence", "The evidence", "Evidence", tuple(content))
