"""What a threshold needs beside scored queries: few labels and a machine, searches within a stratum, advice."""
