"""Turns figures into plots and one page that a person wants to read.

`python -m bench.report --out FOLDER FIGURES...` writes a page that needs neither a
network nor scripts, and each of its plots as an SVG file.
"""
