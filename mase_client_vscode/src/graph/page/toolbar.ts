/** The page's tools: search, colours, opening and closing, zoom, export. */
import { element, svg } from '../../webview/page/elements';
import { MODES, Mode } from '../colours';

/** The actions of the tools, by name. */
export interface Actions {
  search(query: string): void;
  next(): void;
  previous(): void;
  leave(): void;
  colour(mode: Mode): void;
  expandAll(): void;
  collapseAll(): void;
  zoomIn(): void;
  zoomOut(): void;
  fit(): void;
  costs(): void;
  exportSvg(): void;
  exportPng(): void;
}

type Press = { [K in keyof Actions]: Actions[K] extends () => void ? K : never }[keyof Actions];

const ICONS: Record<string, string> = {
  previous: 'M3 10l5-5l5 5',
  next: 'M3 6l5 5l5-5',
  expandAll: 'M3 3h10v10h-10zM8 5.5v5M5.5 8h5',
  collapseAll: 'M3 3h10v10h-10zM5.5 8h5',
  zoomIn: 'M8 3v10M3 8h10',
  zoomOut: 'M3 8h10',
  fit: 'M2.5 6v-3.5h3.5M10 2.5h3.5v3.5M13.5 10v3.5h-3.5M6 13.5h-3.5v-3.5',
  costs: 'M2.5 3h11v10h-11zM2.5 6.5h11M2.5 10h11M7 3v10',
};

export class Toolbar {
  readonly root = element('div', { class: 'toolbar graph-tools', role: 'toolbar', 'aria-label': 'Graph' });
  private readonly input = element('input', { type: 'search', class: 'search', placeholder: 'Find in the graph', 'aria-label': 'Find in the graph' });
  private readonly count = element('output', { class: 'count', 'aria-live': 'polite' });
  private readonly select = element('select', { class: 'mode', 'aria-label': 'Colour by', title: 'Colour by' });

  constructor(private readonly actions: Actions) {
    this.select.append(...Object.entries(MODES).map(([value, text]) => element('option', { value }, text)));
    this.root.append(
      this.input,
      this.count,
      ...this.buttons({ previous: 'Previous match (Shift+Enter)', next: 'Next match (Enter)' }),
      this.select,
      element('span', { class: 'space' }),
      ...this.buttons({ expandAll: 'Open all modules', collapseAll: 'Close all modules', zoomOut: 'Zoom out (-)', zoomIn: 'Zoom in (+)', fit: 'Show all (0)', costs: 'Show the costs' }),
      this.button('exportSvg', 'Save as SVG', 'SVG'),
      this.button('exportPng', 'Save as PNG', 'PNG'),
    );
    this.input.addEventListener('input', () => actions.search(this.input.value));
    this.input.addEventListener('keydown', (event) => this.key(event));
    this.select.addEventListener('change', () => actions.colour(this.select.value as Mode));
  }

  /** Show in the search field which match is selected, and how many there are. */
  found(text: string): void {
    this.count.value = text;
  }

  mode(mode: Mode): void {
    this.select.value = mode;
  }

  focusSearch(): void {
    this.input.focus();
    this.input.select();
  }

  private key(event: KeyboardEvent): void {
    if (event.key === 'Enter') (event.shiftKey ? this.actions.previous : this.actions.next)();
    else if (event.key === 'Escape') this.actions.leave();
    else return;
    event.preventDefault();
  }

  private buttons(titles: Partial<Record<Press, string>>): HTMLButtonElement[] {
    return Object.entries(titles).map(([name, title]) => this.button(name as Press, title, icon(name)));
  }

  private button(name: Press, title: string, content: Node | string): HTMLButtonElement {
    const made = element('button', { type: 'button', title, 'aria-label': title, 'data-action': name }, content);
    made.addEventListener('click', () => this.actions[name]());
    return made;
  }
}

function icon(name: string): SVGSVGElement {
  return svg('svg', { viewBox: '0 0 16 16', width: 16, height: 16, 'aria-hidden': 'true', class: 'icon' }, svg('path', { d: ICONS[name] ?? '' }));
}
