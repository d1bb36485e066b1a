"""`panas report` as one HTML file: facts of a run, pictures as SVG, and templates.

`facts.py` reads a run, `charts/` draws, `page.py` puts both into `templates/`. A page asks for
nothing from elsewhere: its style and pictures are in it. Everything a user names is escaped.
"""
