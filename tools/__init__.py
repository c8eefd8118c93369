"""Programs that maintain the repository; none is part of the package."""
