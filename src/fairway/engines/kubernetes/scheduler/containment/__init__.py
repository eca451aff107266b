"""A failure of the scheduler is contained to its object: what fails is left out, shown and tried again; the rest goes on."""
