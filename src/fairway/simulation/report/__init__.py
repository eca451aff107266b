"""Results of simulations, for people and programs: data, tables, and pages with charts. Nothing here reads or writes files."""
