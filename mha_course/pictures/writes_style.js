// How the picture of writes.js looks.

export const WRITES_STYLE = `
.mha-writing{container-type:inline-size;--mha-ribbon:#5c8dc6;--mha-answer:#174f92;--mha-cut:#b8390b;
 font-size:var(--mha-quiet)}
.mha-dark.mha-writing{--mha-ribbon:#6ea5e0;--mha-answer:#8fbff2;--mha-cut:#ff8f57}
.mha-left .mha-caption{font-size:var(--mha-body);min-height:2.9em;max-width:none;display:grid;align-content:center;
 text-align:center;text-wrap:balance;margin:.3rem 0}
.mha-top{display:grid;grid-template-columns:minmax(0,1fr) 17.5rem;gap:0 1.5rem;align-items:start}
.mha-flowing{position:relative;touch-action:pan-y;cursor:pointer;-webkit-user-select:none;user-select:none;
 -webkit-tap-highlight-color:transparent}
.mha-flowing svg{position:absolute;inset:0;width:100%;height:100%;pointer-events:none;overflow:visible}
.mha-flowing path{fill:color-mix(in srgb,var(--mha-ribbon) 55%,var(--mha-page));stroke:var(--mha-ribbon);
 stroke-width:.75;transition:fill .2s}
.mha-flowing path.mha-near{fill:var(--mha-ribbon)}
.mha-flowing path.mha-cut-off{fill:none;stroke:var(--mha-cut);stroke-width:1.5;stroke-dasharray:3 4}
.mha-words{position:relative;z-index:1;margin:0;display:flex;flex-wrap:wrap;justify-content:center;row-gap:2px;
 font-size:clamp(var(--mha-large),4.4cqi,var(--mha-largest));line-height:1}
.mha-words.mha-long{font-size:clamp(var(--mha-large),3cqi,var(--mha-larger))}
.mha-view .mha-word{border:0;background:var(--mha-page);color:inherit;font:inherit;padding:0 .14em;min-width:24px;
 height:2.75rem;line-height:2.75rem;white-space:pre;letter-spacing:-.01em;position:relative;cursor:pointer}
.mha-view .mha-word.mha-tight{margin-left:-.14em;padding-left:0;text-align:left;min-width:.6em}
.mha-word.mha-near{color:var(--mha-ribbon)}
.mha-word[aria-pressed=true]{color:var(--mha-cut)}
.mha-word[aria-pressed=true]::after{content:"";position:absolute;left:2px;right:2px;top:54%;border-top:3px solid}
.mha-dots{line-height:2.75rem;padding:0 .14em;opacity:.65}
.mha-tag{position:absolute;z-index:2;font-size:var(--mha-small);line-height:1;padding:6px 8px;
 background:var(--mha-text);color:var(--mha-page);border-radius:6px;pointer-events:none;
 transform:translate(-50%,-50%);white-space:nowrap}
.mha-tag[hidden]{display:none}
.mha-answer{margin:.15rem 0 0;text-align:center;font-weight:700;font-size:var(--mha-largest);line-height:1.15;
 letter-spacing:-.01em;color:var(--mha-answer)}
.mha-changed .mha-answer{color:var(--mha-cut)}
.mha-view .mha-next{list-style:none;margin:4rem 0 0;padding:0;min-height:8.75rem}
.mha-next li{display:grid;grid-template-columns:5.6em 1fr 2.6em;gap:.5rem;align-items:center;height:1.75rem;
 font-size:var(--mha-quiet);position:relative}
.mha-next b{text-align:right;font-weight:400;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.mha-next li:first-child b{font-weight:650}
.mha-track{position:relative;height:14px;border-radius:3px;
 background:color-mix(in srgb,var(--mha-text) 9%,var(--mha-page))}
.mha-track i{position:absolute;inset:0 auto 0 0;min-width:2px;border-radius:3px;background:var(--mha-answer);
 transition:width .35s cubic-bezier(.2,.7,.2,1);forced-color-adjust:none}
.mha-other .mha-track i{background:var(--mha-cut)}
.mha-view:not(.mha-changed) .mha-other .mha-track i{background:var(--mha-ribbon)}
.mha-track u{position:absolute;top:-3px;bottom:-3px;width:2px;background:var(--mha-text);opacity:.6}
.mha-steps,.mha-list,.mha-tee,.mha-own{display:flex;flex-wrap:wrap;gap:.5rem .75rem;justify-content:center;
 margin:.5rem 0}
.mha-list,.mha-own{justify-content:flex-start}
.mha-own label{display:flex;gap:.4em;align-items:center}
.mha-own :is(input,select){min-height:44px;font:inherit;font-size:var(--mha-body);padding:0 .6em;color:inherit;
 background:var(--mha-page);border:1px solid;border-radius:8px}
.mha-own [type=text]{flex:1 1 16em;min-width:0;max-width:30em}
.mha-own [type=number]{width:5.5em}
.mha-own span{flex-basis:100%}
.mha-text{white-space:pre-wrap;margin:.5rem 0}
:is(.mha-steps,.mha-list,.mha-tee,.mha-own) button{min-height:44px;padding:.3rem 1rem;font:inherit;color:inherit;
 background:none;border:1px solid color-mix(in srgb,var(--mha-text) 45%,var(--mha-page));border-radius:10px;
 cursor:pointer}
.mha-view .mha-main{background:var(--mha-answer);border-color:var(--mha-answer);color:var(--mha-page);font-weight:600}
.mha-tee button{line-height:1.2;text-align:center;padding:.3rem .75rem}
.mha-tee small{display:block;font-size:var(--mha-small)}
.mha-tee button[aria-pressed=true]{border-color:var(--mha-cut);color:var(--mha-cut);text-decoration:line-through}
.mha-lens{font-size:var(--mha-small);opacity:.85;text-align:center;text-wrap:balance;margin:.5rem auto;max-width:62ch}
.mha-inside{margin-top:.5rem}
.mha-inside .mha-lens{text-align:left;margin:.5rem 0}
.mha-inside summary{min-height:32px}
.mha-inside .mha-bar{position:static}
.mha-view .mha-word:focus-visible,.mha-view :is(.mha-steps,.mha-list,.mha-tee) button:focus-visible{
 outline:3px solid var(--mha-focus);outline-offset:1px}
@container (max-width:620px){.mha-top{display:flex;flex-direction:column;align-items:stretch}
 .mha-left{display:contents}.mha-next{order:1}.mha-left>:is(.mha-steps,.mha-lens){order:2}
 .mha-answer{font-size:var(--mha-larger)}.mha-view .mha-next{width:100%;max-width:26rem;margin:.2rem auto 0;
 min-height:7rem}.mha-next li:nth-child(n+5){display:none}
 .mha-words{row-gap:8px;font-size:clamp(var(--mha-large),7.4cqi,var(--mha-largest))}
 .mha-view .mha-word,.mha-dots{height:2.5rem;line-height:2.5rem}}
@media (prefers-reduced-motion:reduce){.mha-flowing path,.mha-track i{transition:none}}
@media (prefers-contrast:more){.mha-flowing path{stroke:var(--mha-text)}:is(.mha-lens,.mha-dots,.mha-track u){opacity:1}
 .mha-track,:is(.mha-steps,.mha-list,.mha-tee,.mha-own) button{outline:1px solid}}
@media (forced-colors:active){.mha-flowing path{fill:CanvasText}.mha-flowing path.mha-cut-off{fill:none;
 stroke:CanvasText}.mha-track{outline:1px solid}.mha-track u{forced-color-adjust:none;background:CanvasText;opacity:1}}
`;
