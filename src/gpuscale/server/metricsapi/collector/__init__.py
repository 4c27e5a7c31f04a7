"""The collector process as the metrics API sees it: started, watched and asked."""
