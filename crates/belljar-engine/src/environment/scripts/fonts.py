# Runs inside of a sandbox that shows the new tree read-only: matplotlib writes its list of fonts.
import matplotlib.font_manager
