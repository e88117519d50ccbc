/** The meaning of the colours. */
import { element } from '../../webview/page/elements';
import { MODES, Mode, Scale } from '../colours';
import { swatch } from './drawing';

export function legendOf(mode: Mode, { legend, nothing }: Scale): HTMLElement[] {
  const entries = legend.map(({ colour, text }) => element('li', {}, swatch(colour), text));
  const body = entries.length > 0 ? element('ul', {}, ...entries) : element('p', {}, nothing);
  return [element('h2', {}, MODES[mode]), body];
}
