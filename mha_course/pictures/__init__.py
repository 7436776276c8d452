"""What a picture says (panels), where its marks stand (layout), and two ways to draw them.

For the explorers and for notebooks' own pictures, on paper and in the browser. It stands on `base`.

A file for each kind of panel (`heatmap`, `words`, `bars`, `curve`, `walk`, `tiles`, `table`,
`stack`, `flow`, `cut`): what it holds, how it describes itself, and how it draws itself as marks.
`panel` is what all have, `panels` names them, `scene` puts them in rows, `layout` says where they
stand; `marks`, `labels`, `axes`, `colours` and `fields` are what they draw with. Two renderers:
`figures` (paper) and `live` with the scripts that `live.js` imports (browser). `controls`: what
sliders ask for; `states`: what a page holds. What is read aloud and stands in tables is made by
`table` (paper) and by `areas.js` (browser).
"""
