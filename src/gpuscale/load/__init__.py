"""`gpuscale load`: bounded test load, and what came of it second by second."""
