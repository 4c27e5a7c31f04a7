"""The building blocks of pages and tables: scripts, styles, columns, words."""
