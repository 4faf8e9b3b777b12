"""Evidence, log ∫ exp(log density): from draws at several temperatures."""
