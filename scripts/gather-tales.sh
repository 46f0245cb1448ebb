#!/usr/bin/env bash
# Gathers the tales of recipes/tales.toml into data/tales.txt: 28 books of Project Gutenberg, whose authors, editors and
# translators died before 1955, so that they are in the public domain wherever terms run 70 years, too. Each book's text is
# checked to be there and to have Gutenberg's marks; what stands before and after them (Gutenberg's own words) is left out.
#
#   scripts/gather-tales.sh [MIRROR]     a mirror of gutenberg.org with its cache/epub/N/pgN.txt
set -euo pipefail
cd "$(dirname "$0")/.."
mirror=${1:-https://www.gutenberg.org}

# number  title (author or editor, died)
books='
11     Alice in Wonderland (Carroll, 1898)
12     Through the Looking-Glass (Carroll, 1898)
16     Peter Pan (Barrie, 1937)
55     The Wonderful Wizard of Oz (Baum, 1919)
486    Ozma of Oz (Baum, 1919)
503    The Blue Fairy Book (Lang, 1912)
540    The Red Fairy Book (Lang, 1912)
640    The Yellow Fairy Book (Lang, 1912)
641    The Violet Fairy Book (Lang, 1912)
708    The Princess and the Goblin (MacDonald, 1905)
2435   The Crimson Fairy Book (Lang, 1912)
2591   Grimms Fairy Tales (Edwardes, 1923 or before)
2781   Just So Stories (Kipling, 1936)
3027   The Orange Fairy Book (Lang, 1912)
3282   The Brown Fairy Book (Lang, 1912)
3454   The Lilac Fairy Book (Lang, 1912)
4018   Japanese Fairy Tales (Ozaki, 1932)
5314   Household Tales (Hunt, 1912)
5615   The Pink Fairy Book (Lang, 1912)
6746   The Grey Fairy Book (Lang, 1912)
7128   Indian Fairy Tales (Jacobs, 1916)
7277   The Green Fairy Book (Lang, 1912)
7439   English Fairy Tales (Jacobs, 1916)
11757  The Velveteen Rabbit (Williams, 1944)
14241  More English Fairy Tales (Jacobs, 1916)
27200  Fairy Tales of Hans Christian Andersen (Paull, 1888)
27826  The Olive Fairy Book (Lang, 1912)
30120  The Happy Prince and Other Tales (Wilde, 1900)
'

mkdir -p data
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

# Between the lines "*** START OF .." and "*** END OF ..", in UTF-8, without carriage returns.
body() {
    tr -d '\r' < "$1" | awk '/^\*\*\* ?START OF/ { inside = 1; next } /^\*\*\* ?END OF/ { inside = 0 } inside'
}

: > "$temporary/tales"
while read -r number title; do
    [ -n "$number" ] || continue
    echo "$title"
    curl -fsSL --retry 3 "$mirror/cache/epub/$number/pg$number.txt" -o "$temporary/book" || {
        echo "book $number, $title: cannot be fetched from $mirror; give another mirror" >&2
        exit 1
    }
    body "$temporary/book" > "$temporary/body"
    if [ "$(wc -c < "$temporary/body")" -lt 10000 ] || ! iconv -f UTF-8 -t UTF-8 "$temporary/body" > /dev/null; then
        echo "book $number, $title: no text in UTF-8 between Gutenberg's marks" >&2
        exit 1
    fi
    cat "$temporary/body" >> "$temporary/tales"
done <<< "$books"
mv "$temporary/tales" data/tales.txt
echo "data/tales.txt: $(wc -c < data/tales.txt) bytes"
