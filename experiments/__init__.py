"""Long studies, each with a quick mode that the tests run."""
