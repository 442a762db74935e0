# P51: prints and leaves behind pickles that write to a file of the host when they are loaded. Nothing
# may load them.
import os, pickle, sys


class Harm:
    def __reduce__(self):
        return (os.system, (f"echo touched >> {sys.argv[1]}",))


harm = pickle.dumps(Harm())
sys.stdout.buffer.write(harm)
sys.stderr.buffer.write(harm)
for name in "result.pkl", "result.pickle", "value", "__main__.pyc":
    with open(name, "wb") as file:
        file.write(harm)
