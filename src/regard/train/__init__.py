"""Loss, schedule, steps, clocks and many processes."""
