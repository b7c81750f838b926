#!/usr/bin/env bash
# The example report, from nothing: measures, cuts, scores and times the bundled Chronos-Bolt, and draws the page.
#   docs/examples/make_report.sh [FOLDER]     results go to FOLDER (demo-report), the page to docs/examples/
# `make report-example` runs it; 3 to 5 minutes on one core. Times are those of the machine that runs it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-demo-report}
mkdir -p "$work"
cd "$work"

rankscope spectrum bundled-bolt --sites all --out spectrum.json --force
rankscope flow bundled-bolt --out flow-sine.json --force
rankscope flow bundled-bolt --signal constant --out flow-constant.json --force
rankscope embed bundled-bolt --out embed.json --force
rankscope compress bundled-bolt --ratio 0.3 --calibration mixture:1024 --out narrow --force
rankscope spectrum narrow --sites all --out narrow-spectrum.json --force
rankscope eval narrow bundled-bolt seasonal-naive --baseline bundled-bolt --out eval.json --force
rankscope bench narrow:fast bundled-bolt:fast bundled-bolt:stock --baseline bundled-bolt:stock --batch 1,32 \
    --out bench.json --force
cp "$here/../../figures/rankscope_paper/figures/data/table2_bundled-bolt.json" .
rankscope theory --all --out theory.json --force
rankscope report . --title "Rank and size of bundled-bolt" ${DATE:+--date "$DATE"} \
    --out "$here/bundled-report.html" --force
