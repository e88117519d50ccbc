/** The state that the page keeps while its tab is hidden, and when the window is reloaded. */
import { Kept } from '../../webview/kept';
import { Mode } from '../colours';
import { View } from '../layout';

export interface State extends Kept {
  open: string[];
  selected: string | undefined;
  view: View;
  mode: Mode;
}
