/** The page's tools: search, colours, opening and closing, zoom, export. */
import { element, svg } from '../../webview/page/elements';
import { MODES, Mode } from '../colours';
import { Choices } from '../messages';

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
  weights(): void;
  minimap(): void;
  thick(): void;
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
  weights: 'M2 13.5h12M4 11.5v-3M7 11.5v-8M10 11.5v-5.5M13 11.5v-1.5',
  minimap: 'M2.5 2.5h11v11h-11zM9 2.5v5h4.5',
  thick: 'M2.5 3.5h11M2.5 7h11M2.5 7.8h11M2.5 11.3h11M2.5 12.3h11M2.5 13.3h11',
  costs: 'M2.5 3h11v10h-11zM2.5 6.5h11M2.5 10h11M7 3v10',
};

const WEIGHTS = 'Weights of the selection, or of the whole model (W)';

export class Toolbar {
  readonly root = element('div', { class: 'toolbar graph-tools', role: 'toolbar', 'aria-label': 'Graph' });
  private readonly input = element('input', { type: 'search', class: 'search', placeholder: 'Find', 'aria-label': 'Find in the graph' });
  private readonly count = element('output', { class: 'count', 'aria-live': 'polite' });
  private readonly thick: HTMLButtonElement;
  private readonly minimap: HTMLButtonElement;
  private readonly weights: HTMLButtonElement;
  private readonly select = element('select', { class: 'mode', 'aria-label': 'Colour by', title: 'Colour by' });

  constructor(private readonly actions: Actions) {
    this.select.append(...Object.entries(MODES).map(([value, text]) => element('option', { value }, text)));
    this.thick = this.button('thick', 'Thicker edges for more bytes', icon('thick'));
    this.minimap = this.button('minimap', 'Map of the whole graph', icon('minimap'));
    this.weights = this.button('weights', WEIGHTS, icon('weights'));
    this.root.append(
      this.input,
      this.count,
      ...this.buttons({ previous: 'Previous match (Shift+Enter)', next: 'Next match (Enter)' }),
      this.select,
      element('span', { class: 'space' }),
      ...this.buttons({ expandAll: 'Open all modules', collapseAll: 'Close all modules', zoomOut: 'Zoom out (-)', zoomIn: 'Zoom in (+)', fit: 'Show all (0)' }),
      this.thick,
      this.minimap,
      this.weights,
      ...this.buttons({ costs: 'Show the costs' }),
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

  choices({ thick, minimap }: Choices): void {
    this.thick.setAttribute('aria-pressed', `${thick}`);
    this.minimap.setAttribute('aria-pressed', `${minimap}`);
  }

  /** Does the selection have weights? */
  hasWeights(has: boolean): void {
    this.weights.disabled = !has;
    this.weights.title = has ? WEIGHTS : 'The selected operation has no weights';
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
