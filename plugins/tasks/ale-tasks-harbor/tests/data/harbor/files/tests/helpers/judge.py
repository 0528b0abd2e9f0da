from pathlib import Path

out = Path("/app/out.txt")
good = out.exists() and out.read_text() == "42\n"
Path("/logs/verifier/reward.txt").write_text(str(float(good)))
