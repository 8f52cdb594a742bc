"""What is told of an optimisation or a benchmark: the JSON report, and the HTML page that draws it.

``summary`` makes the public JSON of an optimisation. ``view`` is what a page shows, whoever measured it; ``changes`` and
``layout`` turn two graphs into such a view, ``optimization`` a finished optimisation; ``render`` writes the page.
"""

from graphopt.report.summary import make_report

__all__ = ["make_report"]
