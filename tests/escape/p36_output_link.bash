# P36: names links where files are wanted: to a file of the host, to a directory of the host, and a
# directory that is a link itself. Each must be refused.
ln -s "$1" direct
mkdir inner && ln -s "$1" inner/deep
ln -s "${1%/*}" dir
ln -s /proc/self/root/"$1" magic
ln "$1" hard 2>/dev/null
echo honest > honest
