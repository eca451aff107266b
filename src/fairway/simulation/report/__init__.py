"""What simulations found, for people and programs: data, tables, and a page with plots. Nothing here reads or writes files."""
