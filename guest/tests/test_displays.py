"""What cells show, by the rules of Jupyter."""

import unittest

from fake import Runner


class Displays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runner = Runner()

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def shown(self, code):
        done = self.runner.run(code)
        self.assertEqual(done["status"], "ok", done)
        self.done = done
        return [event["data"] for event in self.runner.displays()]

    def test_rich_value(self):
        (data,) = self.shown("class H:\n  def _repr_html_(self): return '<b>'\n  def __repr__(self): return 'H'\nH()")
        self.assertEqual(data, {"text/html": "<b>", "text/plain": "H"})
        self.assertEqual(self.done["value"], {"$": "repr", "type": "H", "v": "H"})
        self.assertEqual(self.shown("H();"), [])
        self.assertEqual(self.shown("H"), [])
        self.assertEqual(self.shown("5"), [])

    def test_display(self):
        shown = self.shown("display(H(), 'text', [1])" if False else "display('text', [1])")
        self.assertEqual(shown, [{"text/plain": "'text'"}, {"text/plain": "[1]"}])

    def test_forms(self):
        code = """
class All:
  def _repr_png_(self): return b'\\0\\1'
  def _repr_jpeg_(self): return 'AAE=', {'width': 1}
  def _repr_svg_(self): return '<svg/>'
  def _repr_markdown_(self): return '# m'
  def _repr_latex_(self): return '$x$'
  def _repr_json_(self): return {'a': 1}
  def _repr_html_(self): return None
All()"""
        (data,) = self.shown(code)
        del data["text/plain"]
        self.assertEqual(data, {"image/png": "AAE=", "image/jpeg": "AAE=", "image/svg+xml": "PHN2Zy8+", "text/markdown": "# m",
                                "text/latex": "$x$", "application/json": '{"a": 1}'})
        (data,) = self.shown("class B:\n  def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': 'b', 'text/plain': 'p'}, {}\nB()")
        self.assertEqual(data, {"text/html": "b", "text/plain": "p"})

    def test_forms_that_fail(self):
        self.assertEqual(self.shown("class F:\n  def _repr_html_(self): 1 / 0\nF()"), [])
        self.assertIn("_repr_html_ of F raised ZeroDivisionError", self.runner.printed(self.runner.err))
        self.assertEqual(self.shown("from unittest.mock import MagicMock\nMagicMock()"), [])

    def test_too_large(self):
        (data,) = self.shown("class L:\n  def _repr_html_(self): return 'x' * 100_000_000\nL()")
        self.assertEqual(list(data), ["text/plain"])
        self.assertIn("text/html of 100000000 bytes", data["text/plain"])
        (data,) = self.shown("class M:\n  def _repr_html_(self): return '\\0' * 1_000_000\nM()")
        self.assertEqual(list(data), ["text/plain"])

    def test_too_many(self):
        shown = self.shown("for i in range(30): display(i)")
        self.assertEqual(len(shown), 9)
        self.assertIn("22 more displays", shown[-1]["text/plain"])
        self.assertEqual(len(self.shown("display(1)")), 1)

    def test_from_a_thread_after_the_cell(self):
        self.shown("import threading, time\nt = threading.Thread(target=lambda: (time.sleep(0.2), display('late')))\nt.start()")
        self.assertEqual(self.shown("time.sleep(0.1)\n1")[:0], [])
        self.shown("t.join()")


class Libraries(unittest.TestCase):
    """numpy, pandas and matplotlib, with an interpreter that has them."""

    @classmethod
    def setUpClass(cls):
        try:
            import matplotlib, numpy, pandas
        except ImportError as error:
            raise unittest.SkipTest("NOT TESTED: numpy, pandas and matplotlib (%s)" % error)
        cls.runner = Runner(tools={"echo": lambda value: value}, limits={"value_bytes": 1 << 20})

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def test_arrays(self):
        value = self.runner.value("import numpy as np\nnp.arange(4, dtype='>i2').reshape(2, 2)")
        self.assertEqual(value, {"$": "ndarray", "dtype": "int16", "shape": [2, 2], "v": "AAABAAIAAwA="})
        self.assertEqual(self.runner.value("np.float64(1.5)"), {"$": "scalar", "dtype": "float64", "v": 1.5})
        self.assertEqual(self.runner.value("np.bool_(True)"), {"$": "scalar", "dtype": "bool", "v": True})
        self.assertEqual(self.runner.value("np.array([object()])")["$"], "repr")
        self.assertEqual(self.runner.value("np.zeros(10_000_000)")["why"], "size")
        for code in ("np.arange(6).reshape(2, 3).T", "np.array(['a', 'bcd'])", "np.array([b'a'])", "np.array(['2020-01-01'], dtype='M8[ns]')",
                     "np.array([1 + 2j])", "np.zeros((0, 3))", "np.array(5)", "np.array([True])", "np.array([1], 'm8[s]')", "np.float32([1])"):
            self.assertEqual(self.runner.value("v = %s\nw = echo(v)\n[bool((w == v).all()), w.dtype == v.dtype, w.shape == v.shape]" % code), [True] * 3, code)
        for code in ("np.int8(3)", "np.float32(0.5)", "np.datetime64('2020-01-01T00:00')", "np.timedelta64(3, 's')", "np.str_('x')", "np.complex128(1j)"):
            self.assertEqual(self.runner.value("v = %s\nw = echo(v)\n[bool(w == v), type(w) is type(v)]" % code), [True, True], code)

    def test_tables(self):
        value = self.runner.value("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None]}, index=['i', 'j'])")
        self.assertEqual((value["$"], value["columns"], value["index"]), ("dataframe", ["a", "b"], ["i", "j"]))
        self.assertEqual(value["v"][0], [1, "x"])
        (event,) = self.runner.displays()
        self.assertIn("<table", event["data"]["text/html"])
        self.assertEqual(event["value"], value)
        self.assertEqual(self.runner.value("pd.Series([1.5], name='s')"), {"$": "series", "name": "s", "index": [0], "v": [1.5]})
        self.assertEqual(self.runner.value("df = pd.DataFrame({'a': [1, 2]})\necho(df).equals(df)"), True)
        self.assertEqual(self.runner.value("[pd.NaT, pd.NA, pd.Timestamp('2020-01-01')]"), [None, None, {"$": "datetime", "v": "2020-01-01T00:00:00"}])
        self.assertEqual(self.runner.value("pd.DataFrame({'a': range(1_000_000)})")["why"], "size")
        self.assertEqual(self.runner.value("pd.DataFrame([[1, 2]], columns=['a', 'a'])")["v"], [[1, 2]])
        self.assertEqual(self.runner.value("pd.DataFrame({('x', 1): [1]})")["columns"], [{"$": "tuple", "v": ["x", 1]}])

    def test_figures(self):
        png = "iVBORw0KGgo"
        self.assertEqual(self.runner.value("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nNone"), None)
        (event,) = self.runner.displays()
        self.assertTrue(event["data"]["image/png"].startswith(png))
        self.runner.value("plt.plot([1]);\nplt.show()\ndisplay('after')")
        self.assertEqual([list(e["data"])[0] for e in self.runner.displays()], ["image/png", "text/plain"])
        self.runner.value("fig, ax = plt.subplots()\nfig")
        self.assertEqual(len(self.runner.displays()), 1)
        self.assertTrue(self.runner.displays()[0]["data"]["image/png"].startswith(png))
        self.assertEqual(self.runner.value("plt.get_fignums()"), [])
        self.runner.run("plt.plot([1])\n1 / 0")
        self.assertEqual(len(self.runner.displays()), 1)
        self.assertEqual(self.runner.value("plt.get_backend().lower()"), "agg")


if __name__ == "__main__":
    unittest.main()
