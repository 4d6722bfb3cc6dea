"""The look of the part of an arena's page that shows questions."""

STYLE = """
body { max-width: 110rem }
.filters { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: end; margin: .8rem 0 }
.filters label { display: grid; font-size: .85rem; color: #6b6862 }
.filters input, .filters select, .steps button { font: inherit; padding: .2rem .4rem }
.filters input { min-width: 18rem }
.browser { display: grid; grid-template-columns: 21rem minmax(0, 1fr); gap: 1.5rem }
#list { position: sticky; top: .5rem; max-height: 94vh; overflow-y: auto; margin: 0; padding: 0;
        list-style: none; border: 1px solid #e3e2e0; border-radius: 4px; align-self: start }
#list button { display: grid; grid-template-columns: 1fr auto; gap: .6rem; width: 100%; border: 0;
               font: inherit; font-size: .85rem; text-align: left; padding: .3rem .6rem;
               background: none; color: inherit; cursor: pointer }
#list span:first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
#list span:last-child { font-family: ui-monospace, monospace; white-space: pre }
#list button:hover { background: #8882 }
#list button[aria-current=true] { background: #37352f; color: #fff }
.steps { display: flex; gap: .8rem; align-items: center; margin-bottom: .6rem; flex-wrap: wrap;
         overflow-wrap: anywhere }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
        gap: 1rem; margin: 1rem 0 }
.box { border: 1px solid #c9c8c5; border-radius: 4px; padding: .6rem .9rem; min-width: 0 }
.box h3 { margin: 0 0 .4rem; font-size: 1rem; overflow-wrap: anywhere }
.box p { max-width: none }
.said { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 70vh; overflow-y: auto;
        font-size: .92rem }
.asked .said { max-height: 15rem }
.said code { display: block; font-family: ui-monospace, monospace; font-size: .85rem;
             background: #8881; padding: .3rem .5rem; overflow-x: auto; white-space: pre }
.verdict { font-family: ui-monospace, monospace; font-weight: 700; border: 2px solid currentColor;
           border-radius: 3px; padding: 0 .4rem; margin-right: .5rem }
.lost { font-weight: normal; font-style: italic }
@media (max-width: 60rem) {
  .browser { grid-template-columns: minmax(0, 1fr) }
  #list { position: relative; top: 0; max-height: 14rem }
}
@media (prefers-color-scheme: dark) {
  #list, .box { border-color: #3a3936 } .filters label { color: #a5a29a }
  #list button[aria-current=true] { background: #e6e4df; color: #191919 }
}
@media print {
  .filters, #list, .steps button { display: none } .browser { grid-template-columns: 1fr }
  .said, .asked .said { max-height: none }
}
"""
