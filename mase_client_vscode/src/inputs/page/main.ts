/** The form's page: begins when it is loaded. */
import '../../webview/page/theme.css';
import './inputs.css';
import { Host } from '../../webview/page/host';
import { FromPage, ToPage } from '../messages';
import { App, State } from './app';

const host = new Host<ToPage, FromPage, State>();
const app = new App(host);
host.connect((message) => app.receive(message));
