# Runs inside of a sandbox: bytecode for everything, since nobody can write it later. It is never
# compared with its source again: the tree does not change.
import compileall, json, os, py_compile


def main():
    with open("job.json") as file:
        tree = json.load(file)["tree"]
    # Files that do not compile, such as templates and tests for other versions, stay as they are.
    compileall.compile_dir(os.path.join(tree, "lib"), quiet=2, workers=min(os.cpu_count() or 1, 4),
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


# Some versions start their workers by importing this again.
if __name__ == "__main__":
    main()
