"""From a fit to a printed error: answers, the rules that bound their errors, and the conclusion."""
