/** What the page keeps while its tab is hidden, and when the window is loaded again. */
import { Mode } from '../colours';
import { Kept } from '../messages';
import { View } from './camera';

export interface State extends Kept {
  open: string[];
  selected: string | undefined;
  view: View;
  mode: Mode;
}
