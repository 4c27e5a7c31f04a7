"""What pages and tables of reports are made of: scripts, styles, columns, words."""
