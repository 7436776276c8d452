// What a view is made of: its style, its elements, and what its keys do.

import { CUT_STYLE } from "./cut.js";
import { FLOW_STYLE } from "./flow.js";
import { WRITES_STYLE } from "./writes_style.js";

const STYLE = `
.mha-explorer,.mha-view{max-width:100%;font-size:var(--mha-small);line-height:1.45;color:var(--mha-text)}
.mha-view{position:relative}
.mha-explorer>.mha-lead{margin:0;font-size:var(--mha-quiet);line-height:1.35;font-weight:600}
.mha-bar{position:sticky;top:0;z-index:3;background:var(--mha-page);margin-left:-2px;padding:2px 0 2px 2px}
.mha-bar>.mha-head{flex:1 0 100%}
.mha-explorer.widget-box,.jp-OutputArea:has(.mha-explorer),.jp-OutputArea :has(.mha-explorer){overflow:visible;
min-width:0}
.mha-head p{margin:.2em 0;max-width:120ch}
.mha-head .mha-caption{min-height:2.9em}
.mha-head .mha-alert{border-left:4px solid #CF5A08;padding:.2em .7em;font-weight:600}
.mha-head .mha-alert:empty,.mha-head .mha-alert:not(:empty)+.mha-caption{display:none}
.mha-view .mha-stage{position:relative;margin-left:-2px;max-width:100%;overflow:auto hidden}
.mha-spot{position:absolute;pointer-events:none}
.mha-said{position:absolute;width:1px;height:1px;margin:0;overflow:hidden;clip-path:inset(50%)}
.mha-view canvas{display:block;max-width:100%;height:auto;border-radius:2px;touch-action:pan-x pan-y}
.mha-view canvas:focus-visible{outline:2px solid var(--mha-focus);outline-offset:-2px}
.mha-view .mha-reading{position:absolute;left:0;top:0;pointer-events:none;padding:2px 8px;border-radius:4px;
 background:var(--mha-text);color:var(--mha-page);white-space:nowrap;font-weight:600;z-index:2;opacity:0}
.mha-view .mha-stale canvas{opacity:.35}
.mha-view :is(summary,button,input,canvas){scroll-margin-top:var(--mha-over)}
.mha-view summary{cursor:pointer}
.mha-view summary,:is(.mha-bar,.mha-more) button{min-height:24px}
.mha-range:not([hidden]){display:flex;gap:.5em;align-items:center;min-height:28px;cursor:pointer}
.mha-view details[open]{flex:1 0 100%;min-width:0}
.mha-view details p{margin:.3em 0;max-width:80ch}
.mha-tables{overflow-x:auto}
.mha-view table{border-collapse:collapse;margin:.3em 0 .8em}
.mha-view caption{text-align:left;font-weight:600;padding:0;white-space:nowrap}
.mha-view th,.mha-view td{text-align:left;padding:1px 14px 1px 0;font-weight:normal;white-space:nowrap;color:inherit;
background:none}
.mha-view thead th{font-weight:600}
.mha-view .mha-more{display:flex;min-height:26px;gap:0 1.6em;align-items:flex-start;flex-wrap:wrap}
.mha-save{position:relative}
.mha-save>button{display:block;width:100%;min-height:32px;text-align:left;font:inherit;color:inherit;background:none;
border:0;cursor:pointer;padding:0 .8em}
.mha-save[open]{flex:none!important}
.mha-save>button:is(:hover,:focus-visible){text-decoration:underline}
.mha-controls{display:flex;flex-wrap:wrap;gap:0 1.6em}
.mha-controls label{min-width:0;max-width:100%;display:flex;flex-wrap:wrap;gap:0 .6em;align-items:center;
min-height:28px}
.mha-controls label[hidden]{display:none}
.mha-controls label:has([type=checkbox]),.mha-explorer .mha-bar .widget-checkbox{min-width:6.6em}
.mha-controls :is(input,select){min-height:24px;max-width:100%;font:inherit;text-overflow:ellipsis}
.mha-controls input[type=range]{width:clamp(84px,26vw,128px)}
@media (max-width:480px){
  .mha-controls{gap:0 .8em}.mha-controls label{gap:0 .4em}
  .mha-controls select{flex:1 1 12em;min-width:0}.mha-controls input[type=range]{width:84px}}
.mha-controls input[type=checkbox]{width:18px;height:18px}
.mha-explorer .noUi-handle{min-width:24px;min-height:24px;transform:translate(4px,-4px)}
.mha-explorer .mha-bar{gap:0 1.6em;align-items:center}
.mha-explorer .mha-bar.widget-box>*{width:auto;margin:2px 0}
.mha-explorer .mha-bar .widget-label{width:auto;margin:0 4px 0 0;overflow:visible}
.mha-explorer .mha-bar .slider-container{flex:0 0 128px;margin:0 16px 0 20px}
.mha-explorer .mha-bar .widget-readout{flex:none;width:auto;min-width:var(--mha-longest);max-width:none;margin:0;
padding:0;overflow:visible;text-align:left}
.mha-bar :is(.widget-radio,.widget-radio-box){display:flex;flex-flow:row wrap;gap:0 1.2em;width:auto;height:auto;
margin:0;padding:0}
.mha-bar .widget-dropdown select{width:auto;padding-right:4px;appearance:auto;background-image:none}
.mha-bar button{min-width:5em;align-self:center;font:inherit;color:inherit;background:none;border:1px solid;
border-radius:4px;cursor:pointer}
@media (max-height:420px){.mha-bar{position:static}}
@media print{.mha-save{display:none}.mha-view .mha-stage{overflow:visible}
  .mha-view canvas{min-width:0!important;max-width:100%!important}}
`;

const KEYS = "Arrow keys go from cell to cell, Page Up and Page Down from panel to panel, Home and End along a row. "
  + "R reads the row, C the column, P the panel; T plays the row of a map as tones, higher for more. "
  + "Enter <span class='mha-enter'></span>, Escape lets go and stops the tones.";
export const enters = ({ cut, writes }) => (cut ? "cuts or mends a ribbon" : writes ? "shows a head’s ribbons"
  : "keeps a cell");

// A view's elements, and how they look.
export const frame = (id, scale) => `<style>${scale}${STYLE}${FLOW_STYLE}${CUT_STYLE}${WRITES_STYLE}</style><label ` +
  `class="mha-range" hidden><input
  type="checkbox"> colours: each row up to its own largest</label><div
  class="mha-head"><p class="mha-alert" role="alert"></p>
  <p class="mha-caption"></p></div><p class="mha-said" role="status"></p><p id="${id}" hidden>${KEYS}</p><div
  class="mha-stage"><canvas tabindex="0" role="application" aria-roledescription="picture"
  aria-describedby="${id}"></canvas><div class="mha-spot"></div></div><div class="mha-reading"
  aria-hidden="true"></div><div class="mha-more"><details><summary>Tables
  and keys</summary><p>${KEYS}</p><div class="mha-tables" tabindex="0" role="group"
  aria-label="tables"></div></details></div>`;
