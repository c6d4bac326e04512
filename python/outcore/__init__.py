"""Arrays larger than memory, at the speed of the disks."""
