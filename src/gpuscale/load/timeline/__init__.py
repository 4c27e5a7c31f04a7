"""What a load did, hop by hop, on one time axis: as a document, as text and as a page."""
