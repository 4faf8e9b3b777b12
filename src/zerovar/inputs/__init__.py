"""What comes in: points with scores, the user's arrays, integrands, other coordinates."""
