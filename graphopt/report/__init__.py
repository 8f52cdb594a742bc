"""The HTML page of an optimisation, a benchmark or an evaluation.

``view`` is what a page shows, whoever measured it; ``changes`` and ``layout`` turn two graphs into such a view, ``optimization`` a
finished optimisation; ``render`` writes the page.
"""
