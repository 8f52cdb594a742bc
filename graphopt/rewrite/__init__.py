"""Rules.

The language (:mod:`expr`, :mod:`functions`, :mod:`pattern`, :mod:`schema`), :mod:`match`, :mod:`apply`, the
:mod:`library` that loads and indexes ``rules/``, :mod:`sites` that keeps all matches of a graph up to date, and
:mod:`examples` that turns a rule's examples into graphs.
"""
