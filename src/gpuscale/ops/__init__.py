"""What puts gpuscale on a cluster, and says what is wrong there."""
