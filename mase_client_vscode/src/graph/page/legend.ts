/** The meaning of the colours, and of the thickness of edges. */
import { element } from '../../webview/page/elements';
import { MODES, Mode, Scale } from '../colours';
import { Thickness } from '../thickness';
import { swatch } from './drawing';

export function legendOf(mode: Mode, { legend, nothing }: Scale, thickness: Thickness | undefined): HTMLElement[] {
  const entries = legend.map(({ colour, text }) => element('li', {}, swatch(colour), text));
  const body = entries.length > 0 ? element('ul', {}, ...entries) : element('p', {}, nothing);
  const colours = element('div', {}, element('h2', {}, MODES[mode]), body);
  return thickness === undefined ? [colours] : [colours, edgesOf(thickness)];
}

function edgesOf({ legend }: Thickness): HTMLElement {
  const entries = legend.map(({ width, text }) => {
    const sample = element('span', { class: 'edge', 'aria-hidden': 'true' });
    sample.style.setProperty('--thickness', `${width}px`);
    return element('li', {}, sample, text);
  });
  return element('div', {}, element('h2', {}, 'Bytes per edge'), entries.length > 0 ? element('ul', {}, ...entries) : element('p', {}, 'No sizes are known.'));
}
