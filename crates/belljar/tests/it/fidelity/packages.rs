//! Packages: pip, numpy, pandas and matplotlib doing real work.

use std::path::PathBuf;

use super::standard;
use crate::harness::{Done, TempDir, Who, belljar, everyone};
use crate::machine::{absent, path, venv};

/// Runs code with the Python environment of `tests/setup`, under the `standard` policy.
fn with_packages(who: Who, what: &str, code: &str) -> Option<Done> {
    let Some(venv) = venv() else {
        absent(
            what,
            "there is no Python environment with the packages; tests/setup makes one",
        );
        return None;
    };
    let path = format!("{}:{}", venv.join("bin").display(), path());
    Some(standard(who, "python", code).env("PATH", &path).go())
}

#[track_caller]
fn expect(what: &str, code: &str, stdout: &str) {
    for who in everyone() {
        if let Some(done) = with_packages(who, what, code) {
            assert_eq!(
                (done.code, done.stdout.as_str()),
                (Some(0), stdout),
                "{what} as {who:?}: {}",
                done.stderr
            );
        }
    }
}

#[test]
fn numpy_computes() {
    let code = "
import numpy as np
rng = np.random.default_rng(7)
a = rng.random((400, 400))
print(np.allclose(a @ np.linalg.inv(a), np.eye(400), atol=1e-6))
u, s, v = np.linalg.svd(a[:50, :50]); print(np.allclose(u * s @ v, a[:50, :50]))
print(np.fft.ifft(np.fft.fft(np.arange(8))).real.round().astype(int).tolist())
np.save('a.npy', a); print(np.array_equal(np.load('a.npy', mmap_mode='r'), a))
print(np.sort(rng.integers(0, 9, 1_000_000)).shape, np.einsum('ij,ij->', a, a) > 0)
";
    expect(
        "numpy",
        code,
        "True\nTrue\n[0, 1, 2, 3, 4, 5, 6, 7]\nTrue\n(1000000,) True\n",
    );
}

#[test]
fn pandas_computes() {
    let code = "
import pandas as pd, numpy as np
frame = pd.DataFrame({'when': pd.date_range('2024-01-01', periods=1000, freq='h'), 'n': np.arange(1000), 'kind': list('ab') * 500})
print(frame.groupby('kind').n.sum().to_dict())
print(frame.set_index('when').n.resample('D').mean().round(1).head(2).tolist())
frame.to_csv('frame.csv', index=False); back = pd.read_csv('frame.csv', parse_dates=['when']); print(back.equals(frame) or (back.n == frame.n).all())
print(frame.merge(frame, on='n').shape, frame.pivot_table(index='kind', values='n', aggfunc='max').n.tolist())
print(pd.Timestamp('2024-07-01', tz='Europe/Paris').utcoffset())
";
    let shown = "{'a': 249500, 'b': 250000}\n[11.5, 35.5]\nTrue\n(1000, 5) [998, 999]\n2:00:00\n";
    expect("pandas", code, shown);
}

#[test]
fn matplotlib_draws() {
    let code = "
import matplotlib; matplotlib.use('Agg')
import matplotlib.pyplot as plt, numpy as np
x = np.linspace(0, 6, 200)
figure, axes = plt.subplots(1, 2)
axes[0].plot(x, np.sin(x), label='sine'); axes[0].legend(); axes[0].set_title('größe $\\\\alpha$')
axes[1].hist(np.cos(x), bins=20)
for name in ('plot.png', 'plot.svg', 'plot.pdf'): figure.savefig(name)
print(open('plot.png', 'rb').read(8), '<svg' in open('plot.svg').read(), open('plot.pdf', 'rb').read(5))
";
    expect("matplotlib", code, "b'\\x89PNG\\r\\n\\x1a\\n' True b'%PDF-'\n");
}

/// `pip install` of a local wheel, into the work directory, without a network.
#[test]
fn pip_installs_a_local_wheel() {
    let dir = TempDir::new();
    let make = "
import sys, zipfile
files = {
    'glassware/__init__.py': 'def greet(): return \"hello from a wheel\"\\n',
    'glassware-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\\nName: glassware\\nVersion: 1.0\\n',
    'glassware-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\\nGenerator: hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',
    'glassware-1.0.dist-info/entry_points.txt': '[console_scripts]\\ngreet = glassware:greet\\n',
}
files['glassware-1.0.dist-info/RECORD'] = ''.join(f'{name},,\\n' for name in [*files, 'glassware-1.0.dist-info/RECORD'])
with zipfile.ZipFile('glassware-1.0-py3-none-any.whl', 'w') as wheel:
    for name, text in files.items(): wheel.writestr(name, text)
";
    let install = "
import os, subprocess, sys
pip = [sys.executable, '-m', 'pip', '--disable-pip-version-check', 'install', '--quiet', '--no-index', '--target', 'packages']
print(subprocess.run([*pip, 'glassware-1.0-py3-none-any.whl']).returncode)
sys.path.insert(0, 'packages')
import glassware; print(glassware.greet(), os.path.exists('packages/bin/greet'))
";
    let wheel = "glassware-1.0-py3-none-any.whl";
    for who in everyone() {
        let Some(venv) = venv() else {
            absent(
                "pip install",
                "there is no Python environment; tests/setup makes one",
            );
            continue;
        };
        let path = format!("{}:{}", venv.join("bin").display(), path());
        belljar(who, ["run", "--policy", "standard", "--out", wheel, "-c", make])
            .cwd(dir.path())
            .go()
            .expect_code(0);
        let made: PathBuf = dir.path().join(wheel);
        let done = belljar(
            who,
            ["run", "--policy", "standard", "--file", wheel, "-c", install],
        )
        .cwd(dir.path())
        .env("PATH", &path)
        .go()
        .expect_code(0);
        assert_eq!(done.stdout, "0\nhello from a wheel True\n", "{}", done.stderr);
        std::fs::remove_file(made).expect("the wheel");
    }
}
