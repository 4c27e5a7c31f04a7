"""The connections of the metrics API server: accepted, bounded, timed, read and written.

asyncio's own TLS holds a buffer of 256 KiB for each connection, and aiohttp bounds neither how many
connections there are nor how long a header may take. Anyone who reaches the port can open a connection, so
here each one is cheap, has deadlines, and gives way to others when there are too many.
"""
