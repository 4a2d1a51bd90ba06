"""One HTML file about one or more runs: build.py is where it begins. This room only reads; it
writes nothing but the report, and is never used inside a job."""
