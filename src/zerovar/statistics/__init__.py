"""Statistics of series of draws: errors of means, tails, ranks and the digits of numbers."""
