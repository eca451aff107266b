"""Views as text: tables, pages, charts, phrases."""
