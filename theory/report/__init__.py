"""A static site of all verdicts: tables, a page and a plot per statement, errata."""
