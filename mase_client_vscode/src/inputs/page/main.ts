/** The form's page: begins when it is loaded. */
import '../../webview/page/theme.css';
import './inputs.css';
import { Host } from '../../webview/page/host';
import { FromPage, KeptForm, ToPage } from '../messages';
import { App } from './app';

const host = new Host<ToPage, FromPage, KeptForm>();
const app = new App(host);
host.connect((message) => app.receive(message));
