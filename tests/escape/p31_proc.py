# P31: what /proc and /sys tell about the host. Each must be absent or denied.
import errno, os

paths = """/proc/kcore /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/kallsyms /proc/modules
/proc/sysrq-trigger /proc/keys /proc/timer_list /proc/interrupts /proc/cmdline /proc/version /proc/partitions
/proc/1/environ /proc/1/maps /proc/1/mem /sys/kernel/notes /sys/class/net /sys/fs/cgroup/memory /sys/firmware
/etc/shadow /etc/machine-id /root /home /var/log /boot /run/docker.sock /var/run/docker.sock""".split()
for path in paths + ["/proc/1/root", "/proc/1/cwd"]:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
        print(f"{path}: ok")
    except OSError as error:
        print(f"{path}: {errno.errorcode[error.errno]}")
print("processes: " + " ".join(sorted(name for name in os.listdir("/proc") if name.isdigit())))
print("others: " + " ".join(sorted(name for name in os.listdir("/proc") if not name.isdigit())))
