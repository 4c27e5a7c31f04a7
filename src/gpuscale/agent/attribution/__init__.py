"""Attribution: from a device or process to its container and pod."""
